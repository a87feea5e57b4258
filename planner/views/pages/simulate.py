"""Simulate."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Simulate", anchor=False)
