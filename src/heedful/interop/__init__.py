"""Import and export of models: Hugging Face's layout and CTranslate2."""
