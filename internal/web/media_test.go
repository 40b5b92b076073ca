package web_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
)

// pngOf is an image of so many pixels a side, in base64.
func pngOf(t *testing.T, side int) string {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// W4: a coding agent's edits are unified diffs, its images are shown, and what it prints has colours. An
// image is known by its first bytes: neither SVG nor markup that calls itself an image is one.
func TestEditsImagesAndColoursOfACodingAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	at := one.StartedAt.Add(time.Microsecond)
	tr := record.OpenTrajectory(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID, "segments", "1.1"), nil, func() time.Time { return at })
	call := func(name string, content any, output string) {
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		tr.Call("s", record.Call{ID: name, Name: name, Status: "completed", Input: json.RawMessage(`{"path":"calc.py"}`), Content: raw, Output: json.RawMessage(output), StartedAt: at})
	}
	before := "a = 1\n" + strings.Repeat("same\n", 20) + "b = 2\nlast\n"
	call("Edit", []map[string]any{{"type": "diff", "path": "src/calc.py", "oldText": before, "newText": strings.Replace(before, "b = 2", "b = <3>\nc = 4", 1)}}, `null`)
	call("Write", []map[string]any{{"type": "diff", "path": "src/new.py", "newText": "one\ntwo\n"}}, `null`)
	call("Bash", []map[string]any{{"type": "content", "content": map[string]any{"type": "text", "text": "\x1b[1;31mFAILED\x1b[0m and \x1b[38;5;208mmore\x1b[m \x1b[2J"}}}, `null`)
	picture := pngOf(t, 3)
	svg := base64.StdEncoding.EncodeToString([]byte(`<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`))
	shown := func(kind, data string) map[string]any {
		return map[string]any{"type": "content", "content": map[string]any{"type": "image", "mimeType": kind, "data": data}}
	}
	call("screenshot", []map[string]any{shown("image/png", picture), shown("image/svg+xml", svg), shown("image/png", svg), shown("image/png", "no base64 <b>")}, `{"content":[{"type":"image","mimeType":"image/png","data":"`+picture+`"}]}`)
	other := pngOf(t, 4)
	tr.Add(record.EventMCPCall, "s", "", map[string]any{"server": "browser", "tool": "take", "arguments": map[string]any{}, "result": map[string]any{"content": []any{map[string]any{"type": "text", "text": "here it is"}, map[string]any{"type": "image", "mimeType": "image/png", "data": other}}}, "startedAt": at, "durationMs": 5})
	tr.Call("s", record.Call{ID: "told", Name: "look", Server: "browser", Status: "completed", Input: json.RawMessage(`{"n":1}`), Output: json.RawMessage(`"done"`), StartedAt: at})
	tr.Add(record.EventMCPCall, "s", "", map[string]any{"server": "browser", "tool": "look", "arguments": map[string]any{"n": 1}, "result": map[string]any{"content": []any{map[string]any{"type": "image", "mimeType": "image/png", "data": pngOf(t, 5)}}}, "startedAt": at, "durationMs": 5})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	page := s.page(s.path(one))
	_, steps, _ := strings.Cut(strings.ReplaceAll(page, "&#43;", "+"), `id="steps"`)
	for _, want := range []string{"<del class=\"plain\">- b = 2</del>\n<ins>+ b = &lt;3&gt;</ins>\n<ins>+ c = 4</ins>", "<ins>+ one</ins>\n<ins>+ two</ins>", `<span class="a1 a31">FAILED</span> and more`, `<b class="ctl">ESC</b>[2J`,
		`src="data:image/png;base64,` + picture + `"`, `src="data:image/png;base64,` + other + `"`, "browser: take", "here it is", "<b>Files changed</b>: 2", `>src/calc.py</a> <ins>+2</ins> <del class="plain">−1</del>`} {
		if n := strings.Count(steps, want); n == 0 || n > 1 && strings.HasPrefix(want, "src") {
			t.Errorf("%.200q is %d times on the page", want, n)
		}
	}
	if n := strings.Count(steps, "<img "); n != 3 {
		t.Errorf("there are %d images", n)
	}
	if strings.Contains(steps, "image/svg") && strings.Contains(steps, "data:image/svg") || strings.Contains(steps, "<span>  a = 1</span>") {
		t.Error("SVG is shown, or what is far from a change")
	}
	if n := strings.Count(steps, "browser: look"); n != 1 {
		t.Errorf("a call that agent and gateway have told is %d times on the page", n)
	}
	_, href, _ := strings.Cut(steps, `<li><a class="u" href="`)
	href, _, _ = strings.Cut(href, `"`)
	if number := href[strings.LastIndex(href, "#s")+2:]; !strings.Contains(steps, fmt.Sprintf(`<li id="s%s">`, number)) {
		t.Errorf("%s leads to no step", href)
	}
}

// An image that is too large for a page is not on it, and the page says so.
func TestAnImageThatIsTooLarge(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	tr := record.OpenTrajectory(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID, "segments", "1.1"), nil, func() time.Time { return *one.StartedAt })
	data := base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 4<<20)...))
	tr.Call("s", record.Call{Name: "big", Status: "completed", Content: json.RawMessage(`[{"type":"content","content":{"type":"image","data":"` + data + `"}}]`), StartedAt: *one.StartedAt})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if page := s.page(s.path(one)); strings.Contains(page, "<img ") || !strings.Contains(page, "too large for this page") || len(page) > 200_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
}
