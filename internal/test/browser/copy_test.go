package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// W8: the link of a page, the id of a rollout and whatever stands in a box are copied by a button.
func TestWhatIsOnAPageIsCopied(t *testing.T) {
	w := sharedTickets(t)
	b, at := open(t, w)
	rollout := w.rollout("fault")
	copied := func(path, button string) string {
		t.Helper()
		b.do(chromedp.Navigate(at+path), chromedp.WaitReady("html[data-ready]"))
		b.do(chromedp.Evaluate(`navigator.clipboard.writeText = async text => { window.copied = text; }; document.querySelector('`+button+`').click()`, nil))
		b.until(`document.querySelector('` + button + `').textContent === 'Copied'`)
		return ask[string](b, `window.copied`)
	}
	if got := copied("/runs/desk?status=failed", `button[data-copy=""]`); got != at+"/runs/desk?status=failed" {
		t.Errorf("the link that was copied is %q", got)
	}
	if got := copied(rollout, `.meta button[data-copy]`); got != rollout[strings.LastIndex(rollout, "/")+1:] {
		t.Errorf("the id that was copied is %q", got)
	}
	if got := copied(rollout, `#again ~ .copybox button`); !strings.HasPrefix(got, "evalrun run set.json --eval-id fault-2 ") {
		t.Errorf("the command that was copied is %q", got)
	}
}
