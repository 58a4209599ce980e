"""Private means of rows: what is interchangeable in the descent loop."""
