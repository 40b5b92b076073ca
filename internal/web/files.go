package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// The limits of files: bytes of a part, bytes of a log's end on the page of its rollout, and files
// that the page lists.
const (
	partBytes = 64 << 10
	endBytes  = 64 << 10
	maxFiles  = 300
)

// filesOf lists the files in the folder of a rollout, without following links.
func filesOf(d report.Folder) []report.File {
	root, err := os.OpenRoot(d.Dir)
	if err != nil {
		return nil // the folder was removed, or the rollout left nothing
	}
	defer func() { _ = root.Close() }() // it was only read
	var out []report.File
	// A file that cannot be read is not listed.
	_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || len(out) == maxFiles {
			return fs.SkipDir
		}
		if info, err := e.Info(); err == nil && e.Type().IsRegular() {
			out = append(out, report.File{Path: name, Size: info.Size()})
		}
		return nil
	})
	return out
}

// paths yields the names of the files that are listed.
func (page *rolloutPage) paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, f := range page.Files {
			if !yield(f.Path) {
				return
			}
		}
	}
}

func (page *rolloutPage) addFiles() {
	var log report.File
	for _, f := range filesOf(page.Folder) {
		page.Files = append(page.Files, fileRow{f, page.fileURL(f.Path)})
		if path.Base(f.Path) == "stderr.log" {
			log = f // the last attempt's log wins, in the order of the names
		}
	}
	if log.Path == "" {
		return
	}
	part, err := readPart(page.Folder, log.Path, log.Size-endBytes, endBytes)
	if err == nil {
		part.URL = page.fileURL(log.Path)
		page.LogEnd = part
		if page.Status == schemas.StateRunning {
			page.Follow = fmt.Sprintf("%s?from=%d", strings.Replace(part.URL, "/files/", "/follow/", 1), part.To)
		}
	}
}

func (page *rolloutPage) fileURL(name string) string {
	u := url.URL{Path: "/runs/" + page.RunID + "/rollouts/" + page.RolloutID + "/files/" + name}
	return u.EscapedPath()
}

// readPart reads a part of a file of a rollout, redacted. It begins and ends with a whole
// character.
func readPart(d report.Folder, name string, from, most int64) (*logPart, error) {
	data, from, size, err := readFile(d, name, from, most)
	if err != nil {
		return nil, err
	}
	out := &logPart{Name: name, From: from, To: from + int64(len(data)), Size: size}
	out.Spans = styled(d.Redact.String(string(trimRunes(data, from > 0))))
	return out, nil
}

// trimRunes drops incomplete characters at the ends.
func trimRunes(data []byte, begins bool) []byte {
	for i := 0; begins && i < 3 && len(data) > 0 && data[0]&0xc0 == 0x80; i++ {
		data = data[1:]
	}
	for i := len(data) - 1; i >= 0 && i >= len(data)-3; i-- {
		if data[i]&0xc0 == 0xc0 { // the first byte of a character, of which the rest may be missing
			if need := []int{2, 2, 3, 4}[data[i]>>4&3]; len(data)-i < need {
				return data[:i]
			}
			break
		}
		if data[i] < 0x80 {
			break
		}
	}
	return data
}

// readFile reads a part of a file that the rollout has left. Links may lead no further than the
// rollout's own folder.
func readFile(d report.Folder, name string, from, most int64) (data []byte, at, size int64, err error) {
	if !fs.ValidPath(name) {
		return nil, 0, 0, fs.ErrNotExist
	}
	root, err := os.OpenRoot(d.Dir)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { _ = root.Close() }() // it was only read
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0, 0, fs.ErrNotExist
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a file that became a pipe does not block
	if err != nil {
		return nil, 0, 0, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, 0, 0, fs.ErrNotExist
	}
	at = max(0, min(from, info.Size()))
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return nil, 0, 0, err
	}
	data, err = io.ReadAll(io.LimitReader(f, most))
	return data, at, info.Size(), err
}

// filePage is a part of a file.
type filePage struct {
	frame
	logPart
	Rollout, RolloutURL string
	Previous, Next, Raw string
	Binary              bool
}

// file answers with a part of a file as a page, or with ?raw with the whole file as an attachment.
func (p *site) file(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	rollout := r.PathValue("rollout")
	d, err := p.o.Service.Folder(r.Context(), run.ID, rollout)
	if err != nil {
		return err
	}
	name, q := r.PathValue("path"), r.URL.Query()
	if q.Has("raw") {
		return raw(w, d, name)
	}
	offset, err := strconv.ParseInt(q.Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		offset = 0
	}
	data, _, size, err := readFile(d, name, offset, partBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound("the rollout has left no file %s, or its folder was removed", plain(name))
	}
	if err != nil {
		return err
	}
	if offset > size { // answer with the last part
		offset = max(0, size-1) / partBytes * partBytes
	}
	part, err := readPart(d, name, offset, partBytes)
	if err != nil {
		return err
	}
	page := &filePage{
		frame: frame{Title: path.Base(name), Section: "/"}, logPart: *part,
		Rollout: d.Name, RolloutURL: "/runs/" + run.ID + "/rollouts/" + rollout, Raw: "?raw",
	}
	page.Binary = bytes.IndexByte(data, 0) >= 0
	if part.From > 0 {
		page.Previous = fmt.Sprintf("?offset=%d", max(0, part.From-partBytes))
	}
	if part.To < part.Size {
		page.Next = fmt.Sprintf("?offset=%d", part.To)
	}
	return p.o.present(w, r, http.StatusOK, "file.html", page)
}

// maxRaw is the most bytes of a file that are sent as an attachment. The file is redacted as a
// whole.
const maxRaw = 64 << 20

// raw sends a file so that a browser saves it and does not show it.
func raw(w http.ResponseWriter, d report.Folder, name string) error {
	data, _, size, err := readFile(d, name, 0, maxRaw)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound("the rollout has left no file %s, or its folder was removed", plain(name))
	}
	if err != nil {
		return err
	}
	if size > maxRaw {
		return &pageError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the file has %d bytes; evalrun logs writes it, or look at it in parts", size)}
	}
	typ := "application/octet-stream"
	if slices.Contains([]string{".log", ".txt", ".json", ".jsonl"}, path.Ext(name)) {
		typ = "text/plain; charset=utf-8"
	}
	attachment(w, path.Base(name), typ, []byte(d.Redact.String(string(data))))
	return nil
}
