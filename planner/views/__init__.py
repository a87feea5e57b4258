"""The Streamlit pages. Nothing below imports this package, and nothing but this package imports streamlit."""
