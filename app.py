"""The dashboard: page config, navigation, link, sidebar. Everything that draws is in `planner.views`.

`streamlit run app.py` imports this file for the server, `app`, which then runs it as the script of every session.
"""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from planner.views import components, server, sidebar, state
from planner.views.pages import accuracy, assumptions, compare, fleet, lessons, plan, recommend, simulate

PICTURES = Path(__file__).parent / "planner" / "views"


def draw() -> None:
    """One run of the script."""
    st.set_page_config(page_title="Serving capacity planner", page_icon=str(PICTURES / "icon.svg"), layout="wide")
    st.logo(str(PICTURES / "logo.svg"), icon_image=str(PICTURES / "icon.svg"), size="large")
    page = st.navigation(
        [
            st.Page(plan.render, title="Plan", url_path="plan", default=True),
            st.Page(simulate.render, title="Simulate", url_path="simulate"),
            st.Page(compare.render, title="Compare", url_path="compare"),
            st.Page(recommend.render, title="Recommend", url_path="recommend"),
            st.Page(fleet.render, title="Fleet and price", url_path="fleet"),
            st.Page(lessons.render, title="Lessons", url_path="lessons"),
            st.Page(accuracy.render, title="Accuracy", url_path="accuracy"),
            st.Page(assumptions.render, title="Assumptions", url_path="assumptions"),
        ],
        position="top",
    )
    # Navigation comes before the link step: after it, the rewriting of the address would bounce every page to the default one.
    state.open_link()
    sidebar.render()
    components.notes()
    page.run()


if __name__ == "__main__":
    draw()
else:
    app = st.App(__file__, middleware=[Middleware(BaseHTTPMiddleware, dispatch=server.extras)])
