"""Assumptions."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Assumptions", anchor=False)
