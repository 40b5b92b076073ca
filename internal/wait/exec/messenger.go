package exec

import (
	"strings"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/wake"
)

// endWord begins the message of a job that is done. The id of its trigger follows.
const endWord = "job"

// Listen calls done with the id of the trigger of each job that ends on this machine, until stop is
// called. A job whose message is lost is found when it is asked for.
func Listen(storeDir string, done func(triggerID string)) (stop func() error, err error) {
	socket, err := wake.Listen(files.Store(storeDir).JobsWake(), func(message string) {
		if words := strings.Fields(message); len(words) == 2 && words[0] == endWord {
			done(words[1])
		}
	})
	return socket.Close, err
}

// tellEnd tells those who listen that the job is done.
func (s jobSpec) tellEnd() {
	if s.Wake != "" {
		wake.Tell(s.Wake, endWord+" "+s.TriggerID+"\n")
	}
}
