"""Language models: n-grams from text by modified Kneser-Ney, pruned, in the ARPA format."""
