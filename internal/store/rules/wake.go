package rules

import (
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// maxNamed bounds the runs that wait to be read from Wake.
const maxNamed = 1000

// MaxMessage is how long the message of a commit may be.
const MaxMessage = 512

// The first words of messages. A commit may give a dispatcher something to do. An event only
// changes a run, which those who watch it want to know.
const (
	commitWord = "commit"
	eventWord  = "event"
)

// Message tells another process of a commit. It has the runs that have changed; if they are too many
// it names none, as earlier versions never named any.
func (c Changed) Message() string {
	word := eventWord
	if c.Dispatchers {
		word = commitWord
	}
	if text := strings.Join(append([]string{word}, c.Runs...), " ") + "\n"; len(text) <= MaxMessage {
		return text
	}
	return word + "\n"
}

// parseMessage reads what other processes say that they have committed.
func parseMessage(text string) (up store.WakeUp, forDispatchers bool) {
	words := strings.Fields(text)
	if len(words) > 1 && (words[0] == commitWord || words[0] == eventWord) {
		up.Runs = words[1:]
	} else {
		up.Unnamed = true
	}
	return up, len(words) == 0 || words[0] != eventWord
}

// Received takes the message of another process. An empty one says that messages may have been lost.
func (d *db) Received(message string) {
	up, forDispatchers := parseMessage(message)
	if up.Unnamed {
		d.changes.announceAll()
	} else {
		d.changes.announce(up.Runs...)
	}
	if forDispatchers {
		d.signal(up)
	}
}

// signal hands a wake-up to the reader of the channel, together with one that was not yet read.
func (d *db) signal(up store.WakeUp) {
	for {
		select {
		case d.wake <- up:
			return
		case earlier := <-d.wake:
			up.Runs = append(earlier.Runs, up.Runs...)
			up.Unnamed = up.Unnamed || earlier.Unnamed || len(up.Runs) > maxNamed
			up.Runs = up.Runs[max(0, len(up.Runs)-maxNamed):]
		}
	}
}
