"""Lessons."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Lessons", anchor=False)
