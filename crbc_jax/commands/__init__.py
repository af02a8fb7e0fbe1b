"""The commands of `crbc`: arguments, and what each does with them."""
