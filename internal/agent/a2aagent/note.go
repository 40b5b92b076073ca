package a2aagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// fileNote is where an attempt notes what it has sent and which task that is. It is durable before
// a message is sent, so that the attempt after a crash does not send it twice.
const fileNote = "a2a.json"

// note is what an attempt has done.
type note struct {
	// MessageID is that of the message which was sent, or may have been.
	MessageID string `json:"messageId"`
	// TaskID is that of the task; empty until it is known.
	TaskID string `json:"taskId,omitempty"`
	// Answers identifies the question that the message answers, Asks the one that the task came to.
	Answers string `json:"answers,omitempty"`
	Asks    string `json:"asks,omitempty"`
}

func (n note) write(dir string) error {
	text, err := jsonobj.Marshal(n)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, fileNote), 0o600, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// readNotes returns the note of an attempt that was broken off with the same work, and that of the
// work before it, which is the last that has a task.
func readNotes(dirs []string, work string) (same, before note, err error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, fileNote)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return note{}, note{}, err
		}
		var n note
		if err := json.Unmarshal(text, &n); err != nil {
			return note{}, note{}, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case n.MessageID == work:
			same = n
		case n.TaskID != "":
			before = n
		}
	}
	return same, before, nil
}
