"""The page of `prowess dev`: commands with forms, calls as they happen, and the story of each."""
