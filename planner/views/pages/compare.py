"""Compare."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Compare", anchor=False)
