"""Protected spans: found by rules, replaced by placeholders, and restored in translations."""
