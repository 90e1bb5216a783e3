"""The paper's figures and claims, made again."""
