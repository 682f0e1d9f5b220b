"""One self-contained HTML file that a board can read: nothing in it is fetched from elsewhere."""
