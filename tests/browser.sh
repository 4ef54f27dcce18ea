# Shared by report_screenshot and site_screenshot, which source it: pages in headless Chromium. Ends with 77 where there is none.
# `work` is a directory of the caller's, for the profile, the frame and Chromium's log.

height=3000
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "skipped: there is no Chromium (package chromium)"
  exit 77
fi

chromium() {  # chromium WIDTH FLAG... PAGE
  local width=$1
  shift
  # A window has a least width; the page has a frame of its own width in it.
  timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --enable-logging=stderr \
    --allow-file-access-from-files --user-data-dir="$work/profile" --window-size=$((width < 600 ? 600 : width)),$height \
    "$@" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
}

frame() {  # frame PAGE WIDTH: a page that shows PAGE so wide, and keeps what that tells it
  cat >"$work/frame.html" <<END
<!DOCTYPE html><html style="color-scheme: light dark"><body style="margin: 0">
<script>onmessage = event => { document.body.dataset.told = event.data; };</script>
<iframe src="$1" style="width: $2px; height: ${height}px; border: 0; display: block"></iframe></body></html>
END
}

picture() {  # picture PAGE WIDTH SCHEME FILE, with 0 for dark and 1 for light
  frame "file://$1" "$2"
  chromium "$2" --blink-settings=preferredColorScheme="$3" --screenshot="$4" "file://$work/frame.html" >/dev/null
  [ -s "$4" ] || { echo "no picture of $1:" >&2; cat "$work/log" >&2; exit 1; }
}

probe() {  # probe <SCRIPT: what `look` has a page tell of itself: whether it is too wide, and what SCRIPT pushes to `faults`
  {
    cat <<'END'
<script>
addEventListener('load', () => {
  const faults = [];
  const wide = element => element.scrollWidth > element.clientWidth;
  if (document.documentElement.scrollWidth > innerWidth) {
    const at = element => element.getBoundingClientRect().right;
    const widest = [...document.body.querySelectorAll('*')].reduce((a, b) => at(b) > at(a) ? b : a);
    faults.push(`the page is ${document.documentElement.scrollWidth} of ${innerWidth} wide: ${widest.outerHTML.slice(0, 80).replace(/\s+/g, ' ')}`);
  }
END
    cat
    cat <<'END'
  parent.postMessage(faults.join(', ') || 'fine', '*');
});
</script>
END
  } >"$work/probe.html"
}

look() {  # look PAGE WIDTH NAME: prints the faults that PAGE tells, "fine" where there are none
  local told probed
  probed=$(dirname "$1")/probed.html  # its files are there
  cat "$1" "$work/probe.html" >"$probed"
  frame "file://$probed" "$2"
  told=$(chromium "$2" --virtual-time-budget=5000 --dump-dom "file://$work/frame.html" | sed -n 's/.*data-told="\([^"]*\)".*/\1/p')
  rm "$probed"
  echo "$3, $2 wide: ${told:-nothing was told}"
  [ -n "$told" ] || cat "$work/log" >&2
  [ "$told" = fine ]
}
