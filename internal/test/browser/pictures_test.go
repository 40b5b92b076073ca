package browser

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	_ "modernc.org/sqlite"
)

var update = flag.Bool("update", false, "write the pictures of docs/pages.md anew")

// The pictures of docs/pages.md are what the pages are compared with. differing is where those are kept
// that are not alike.
const (
	goldens   = "../../../docs/pages"
	differing = "differing"
)

// fixedTimes gives a store that was made by real runs the times of others, so that its pages are always
// the same. Every duration follows from the place of a rollout in its run; the clocks add up.
const fixedTimes = `
UPDATE runs SET created_at = :day, finished_at = finished_at * 0 + :day + 480e6;
UPDATE runs SET created_at = created_at - 86400e6, finished_at = finished_at - 86400e6 WHERE run_id = 'nightly-41';
UPDATE rollouts SET created_at = (SELECT created_at FROM runs r WHERE r.run_id = rollouts.run_id), queued = 20000, working = 300000 + 7919 * ordinal % 500000,
  waiting = waiting / max(waiting, 1) * 3600e6, evaluating = evaluating / max(evaluating, 1) * 4000;
UPDATE rollouts SET state_since = created_at + queued + working + waiting + evaluating, finished_at = finished_at * 0 + created_at + queued + working + waiting + evaluating;
UPDATE segments SET started_at = (SELECT created_at + queued FROM rollouts r WHERE r.rollout_id = segments.rollout_id);
UPDATE segments SET ended_at = started_at + (SELECT working / r.segment FROM rollouts r WHERE r.rollout_id = segments.rollout_id);
UPDATE segments SET started_at = started_at + (SELECT working / 2 + waiting FROM rollouts r WHERE r.rollout_id = segments.rollout_id), ended_at = ended_at + (SELECT working / 2 + waiting FROM rollouts r WHERE r.rollout_id = segments.rollout_id) WHERE segment = 2;
UPDATE triggers SET created_at = (SELECT ended_at FROM segments s WHERE s.rollout_id = triggers.rollout_id AND s.segment = 1), deadline = deadline * 0 + :day + 7 * 86400e6;
UPDATE triggers SET id = 1000000 + (SELECT r.ordinal + iif(r.run_id = 'nightly-41', 0, 1000) FROM rollouts r WHERE r.rollout_id = triggers.rollout_id);
UPDATE triggers SET delivered_at = delivered_at * 0 + created_at + 3600e6, person = iif(person = '', '', 'ada');
UPDATE deliveries SET received_at = (SELECT delivered_at FROM triggers t WHERE t.trigger_id = deliveries.trigger_id), person = 'ada';
UPDATE results SET data = (SELECT json_group_array(json_set(e.value, '$.durationNs', 1200000, '$.startedAt', strftime('%Y-%m-%dT%H:%M:%fZ', (SELECT finished_at - evaluating FROM rollouts r WHERE r.rollout_id = results.rollout_id) / 1e6, 'unixepoch')))
  FROM json_each(results.data) e);
UPDATE events SET time = (SELECT created_at FROM runs r WHERE r.run_id = events.run_id) + seq * 1000;`

func (w *world) fixTimes() {
	w.Helper()
	db, err := sql.Open("sqlite", filepath.Join(w.dir, ".evalrun", "store.db"))
	if err != nil {
		w.Fatal(err)
	}
	defer db.Close()
	const day = 1_767_603_600_000_000 // 2026-01-05 09:00:00 UTC, in microseconds
	if _, err := db.ExecContext(w.Context(), fixedTimes, sql.Named("day", day)); err != nil {
		w.Fatal(err)
	}
}

// sameChromium skips the test where another Chromium draws than has drawn the pictures: no two of them
// draw every line alike.
func sameChromium(t *testing.T) {
	t.Helper()
	said, err := exec.Command("chromium", "--version").Output()
	if err != nil {
		newBrowser(t) // says what is missing
		t.Fatal(err)
	}
	const file = "testdata/chromium"
	if *update {
		if err := os.WriteFile(file, said, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	drew, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(said) != string(drew) {
		t.Skipf("this is %s, and the pictures are by %s: make pictures draws them anew", bytes.TrimSpace(said), bytes.TrimSpace(drew))
	}
}

// fonts lets Chromium see one family of fonts, drawn in one way, whatever the machine has.
func fonts(t *testing.T) {
	t.Helper()
	const dir = "/usr/share/fonts/truetype/dejavu"
	if _, err := os.Stat(filepath.Join(dir, "DejaVuSans.ttf")); err != nil {
		if os.Getenv("EVALRUN_CHROMIUM") == "required" {
			t.Fatal("there are no DejaVu fonts (EVALRUN_CHROMIUM=required): Debian's package fonts-dejavu-core")
		}
		t.Skip("there are no DejaVu fonts: Debian's package fonts-dejavu-core")
	}
	folder := t.TempDir()
	own := filepath.Join(folder, "fonts")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	config := `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>` + own + `</dir><cachedir>` + folder + `/cache</cachedir>
<match target="font"><edit name="antialias" mode="assign"><bool>true</bool></edit><edit name="hinting" mode="assign"><bool>false</bool></edit><edit name="rgba" mode="assign"><const>none</const></edit></match>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias><alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias></fontconfig>`
	file := filepath.Join(folder, "fonts.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FONTCONFIG_FILE", file)
}

// The pages of fixed stores look as the pictures of docs/pages.md, light, dark and narrow.
func TestPictures(t *testing.T) {
	fonts(t)
	sameChromium(t)
	w := newWorld(t, map[string]string{"evalset.json": pictureSet(), "agent.sh": pictureAgent})
	w.evalrun(75, "run", "-q", "-j", "1", "--run-id", "nightly-41", "evalset.json")
	if err := os.WriteFile(filepath.Join(w.dir, "agent.sh"), []byte(betterAgent), 0o600); err != nil {
		t.Fatal(err)
	}
	w.evalrun(75, "run", "-q", "-j", "1", "--run-id", "nightly-42", "evalset.json")
	refunds := w.rolloutsOf("nightly-42", "refund-1")
	w.evalrun(0, "approve", "-q", w.triggerOf("nightly-42", refunds[0]))
	w.evalrun(75, "resume", "-q", "-j", "1", "nightly-42")
	w.fixTimes()
	w.evalrun(0, "report", "nightly-41", "--format", "html", "-o", "report.html")
	b, at := open(t, w)
	rollout := at + "/runs/nightly-42/rollouts/" + refunds[0]
	for _, one := range []struct {
		name, url, theme string
		width            int64
	}{
		{"runs", at + "/", "light", 1000},
		{"run", at + "/runs/nightly-42", "light", 1000},
		{"run-dark", at + "/runs/nightly-42?view=rollouts&status=failed", "dark", 1000},
		{"run-narrow", at + "/runs/nightly-42", "light", 400},
		{"rollout", rollout, "light", 1000},
		{"rollout-dark", rollout, "dark", 1000},
		{"inbox", at + "/inbox", "light", 1000},
		{"waiting", at + "/triggers", "light", 1000},
		{"compare", at + "/compare?a=nightly-41&b=nightly-42", "light", 1000},
		{"report", "file://" + w.dir + "/report.html", "dark", 1000},
	} {
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: one.theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
			chromedp.EmulateViewport(one.width, 900), chromedp.Navigate(one.url), chromedp.WaitReady("html[data-ready]"))
		b.until(`location.protocol === 'file:' || !document.querySelector('#live') || document.querySelector('#live').textContent.includes('live')`)
		height := min(ask[float64](b, `Math.max(500, document.documentElement.scrollHeight)`), 1500)
		compare(t, one.name, b.shot(one.width, int64(height)))
	}
}

// shot is a picture of the page in a window of this size.
func (b *browser) shot(width, height int64) (picture []byte) {
	b.do(chromedp.EmulateViewport(width, height), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		picture, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	return picture
}

// compare compares a picture with the one in docs, and keeps it where they differ.
func compare(t *testing.T, name string, shot []byte) {
	t.Helper()
	taken, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join(goldens, name+".png")
	if *update {
		writePicture(t, golden, reduced(taken))
		return
	}
	data, err := os.ReadFile(golden)
	if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is no %s: go test -run TestPictures -update", golden)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	kept, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if share := difference(taken, kept); share > 0.001 {
		if err := os.MkdirAll(differing, 0o755); err != nil {
			t.Fatal(err)
		}
		writePicture(t, filepath.Join(differing, name+".png"), taken)
		t.Errorf("%s: %.2f %% of it differ from %s; %s/%s.png is how it looks (-update, if that is right)", name, 100*share, golden, differing, name)
	}
}

func writePicture(t *testing.T, name string, picture image.Image) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, picture); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// difference is the share of two pictures that differ so much that one sees it. Blocks of two by two
// pixels are compared, so that the edges of letters may be drawn a little differently.
func difference(a, b image.Image) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	size, n := a.Bounds().Size(), 0
	for y := 0; y+1 < size.Y; y += 2 {
		for x := 0; x+1 < size.X; x += 2 {
			p, q := block(a, x, y), block(b, x, y)
			if max(abs(p[0]-q[0]), abs(p[1]-q[1]), abs(p[2]-q[2])) > 48 {
				n++
			}
		}
	}
	return float64(4*n) / float64(size.X*size.Y)
}

func abs(n int) int { return max(n, -n) }

// block is the mean colour of four pixels.
func block(p image.Image, x, y int) (sum [3]int) {
	for i := range 4 {
		r, g, b, _ := p.At(x+i%2, y+i/2).RGBA()
		sum[0], sum[1], sum[2] = sum[0]+int(r>>10), sum[1]+int(g>>10), sum[2]+int(b>>10)
	}
	return sum
}

// reduced is a picture in its 256 most frequent colours, which is a third of the bytes.
func reduced(p image.Image) *image.Paletted {
	size := p.Bounds()
	count := map[color.RGBA]int{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			count[rgba(p, x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	out, index := image.NewPaletted(size, palette), map[color.RGBA]uint8{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			c := rgba(p, x, y)
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return out
}

func rgba(p image.Image, x, y int) color.RGBA {
	r, g, b, _ := p.At(x, y).RGBA()
	return color.RGBA{uint8(r >> 10 * 255 / 63), uint8(g >> 10 * 255 / 63), uint8(b >> 10 * 255 / 63), 255}
}
