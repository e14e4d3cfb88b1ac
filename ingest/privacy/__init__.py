"""What is known of a person: whose rows are whose, what was asked to be erased and what keeps it from coming back; and
the proof that it is gone: `scan` looks, `canaries` prove that it sees, `certificate` says what was found. None of these
three knows how anything is erased."""
