// Whether a media query holds, followed as the window changes.
import { useEffect, useState } from "preact/hooks";

export const kNarrow = "(max-width: 60rem)";

export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const follow = () => setMatches(list.matches);
    follow();
    list.addEventListener("change", follow);
    return () => list.removeEventListener("change", follow);
  }, [query]);
  return matches;
}
