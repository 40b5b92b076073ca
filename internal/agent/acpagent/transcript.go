package acpagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/record"
)

const (
	// maxTranscript is how much of a transcript is replayed. maxResult is how much of one tool's
	// result is replayed.
	maxTranscript = 100 << 10
	maxResult     = 2 << 10
	// These texts surround a transcript. The lines of the transcript are quoted, so that nothing in
	// it can be taken for its end.
	transcriptStart = "This conversation was interrupted and goes on here. What was said and done so far:\n\n"
	transcriptEnd   = "\n\n[end of what was said and done]\n\n"
)

// transcript tells a new session what happened in the conversation before.
func (c *conversation) transcript() (string, error) {
	var parts []string
	for _, dir := range c.seg.History {
		f, err := os.Open(filepath.Join(dir, record.FileTrajectory))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		dec := json.NewDecoder(f)
		for {
			var e record.Event
			if err := dec.Decode(&e); err != nil {
				break // the end, or a torn line
			}
			if text := retell(e); text != "" && slices.Contains(c.record.Sessions, e.SessionID) {
				parts = append(parts, text)
			}
		}
		_ = f.Close() // only read
	}
	text := strings.Join(parts, "\n\n")
	if len(text) > maxTranscript {
		head, tail := text[:maxTranscript/4], text[len(text)-maxTranscript*3/4:]
		text = strings.ToValidUTF8(head, "") + "\n\n[… left out …]\n\n" + strings.ToValidUTF8(tail, "")
	}
	return transcriptStart + "> " + strings.ReplaceAll(text, "\n", "\n> ") + transcriptEnd, nil
}

// retell returns an event as a transcript has it. It is empty for events that are left out.
func retell(e record.Event) string {
	switch e.Type {
	case record.EventPrompt:
		text := e.Text
		if strings.HasPrefix(text, transcriptStart) { // that prompt contained the events before it already
			_, text, _ = strings.Cut(text, transcriptEnd)
		}
		return "User: " + text
	case record.EventMessage:
		return "You: " + e.Text
	case record.EventToolCall:
		result := e.Call.Text()
		if len(result) > maxResult {
			result = strings.ToValidUTF8(result[:maxResult], "") + "…"
		}
		return fmt.Sprintf("You called %s %s (%s): %s", e.Call.Name, e.Call.Input, e.Call.Status, result)
	}
	return ""
}
