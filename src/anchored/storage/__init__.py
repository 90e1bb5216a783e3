"""Files written whole, and read with every field checked."""
