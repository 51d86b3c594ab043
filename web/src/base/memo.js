// Draws a component again only when one of its properties is another value.
import { Component, h } from "preact";

export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = new Set([...Object.keys(this.props), ...Object.keys(next)]);
      return [...names].some((name) => this.props[name] !== next[name]);
    }

    render(props) {
      return h(draw, props);
    }
  };
}
