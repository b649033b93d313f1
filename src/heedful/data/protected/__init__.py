"""What a translation must keep: found by rules, replaced by placeholders, put back."""
