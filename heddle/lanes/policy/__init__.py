"""The learned policy. Nothing here needs torch but `train`."""
