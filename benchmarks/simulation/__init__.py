"""How often intervals hold the truth, how often nothing is called a difference, and which differences are found."""
