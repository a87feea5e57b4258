"""Fleet."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Fleet", anchor=False)
