"""What commands print, where that is a page of its own."""
