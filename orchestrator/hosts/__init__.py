"""The machines of an inventory: how each is reached, what it is, and the cluster that is made of them."""
