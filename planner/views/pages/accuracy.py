"""Accuracy."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Accuracy", anchor=False)
