"""The local review page: a person checks labels, and every decision is kept."""
