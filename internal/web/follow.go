package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/report"
)

// followPause is the time between two looks at a log that is followed.
const followPause = 500 * time.Millisecond

// logEvent is an addition to a log: texts with their class, and whether each is the name of a
// control character.
type logEvent struct {
	Spans [][3]any `json:"spans"`
}

// follow streams the additions to a log of a rollout, from a byte on, until its agent no longer
// runs. The id of an event is the byte up to which it goes, so that a browser that comes back
// misses nothing and gets nothing twice.
func (p *site) follow(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	id := r.PathValue("rollout")
	d, err := p.o.Service.Folder(r.Context(), run.ID, id)
	if err != nil {
		return err
	}
	name := r.PathValue("path")
	from, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		from, _ = strconv.ParseInt(r.URL.Query().Get("from"), 10, 64) // without a number it begins at 0
	}
	if _, _, _, err := readFile(d, name, 0, 0); errors.Is(err, fs.ErrNotExist) {
		return notFound("the rollout has left no file %s, or its folder was removed", plain(name))
	} else if err != nil {
		return err
	}
	s, err := p.streams.answerWith(w)(&p.streams.runs, errManyStreams)
	if err != nil {
		return err
	}
	defer s.Close()
	always := make(chan struct{}) // a file does not announce that it has grown
	close(always)
	for {
		one, err := p.o.Service.FindRollout(r.Context(), id) // before the file, which does not grow after the end
		if err != nil {
			return nil //nolint:nilerr // the browser comes again, and is told then
		}
		ended := one.State != eval.StateRunning
		for {
			data, at, err := grown(d, name, from, ended)
			if err != nil {
				return nil //nolint:nilerr // as above
			}
			if len(data) == 0 {
				break
			}
			from = at + int64(len(data))
			text, _ := json.Marshal(newLogEvent(d.Redact.String(string(data)))) // strings and booleans can be encoded
			if tell(s, from, "log", text) != nil {
				return nil
			}
		}
		if ended {
			_ = tell(s, from, "end", strconv.AppendQuote(nil, string(one.State))) // nobody may listen any more
			return nil
		}
		if !s.Wait(r.Context(), always, followPause) {
			return nil
		}
	}
}

// grown returns the content of a file from a byte on, in whole lines unless all of it is there, so
// that no secret and no character is cut in two.
func grown(d report.Folder, name string, from int64, all bool) (data []byte, at int64, err error) {
	data, at, _, err = readFile(d, name, from, partBytes)
	if err != nil || all && len(data) < partBytes {
		return data, at, err
	}
	if end := bytes.LastIndexByte(data, '\n'); end >= 0 {
		return data[:end+1], at, nil
	}
	if len(data) < partBytes {
		return nil, at, nil
	}
	return trimRunes(data, false), at, nil // the line is longer than a part
}

func newLogEvent(text string) logEvent {
	var e logEvent
	for _, s := range styled(text) {
		e.Spans = append(e.Spans, [3]any{s.Text, s.Class, s.Control})
	}
	return e
}
