"""The driver of a campaign, which starts its tasks and is the only one that writes its rows."""
