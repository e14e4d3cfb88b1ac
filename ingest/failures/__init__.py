"""What is said and done for each class of error: sentence, remedy, retried or not."""
