"""Recommend."""

import streamlit as st


def render() -> None:
    """Draw the page."""
    st.title("Recommend", anchor=False)
