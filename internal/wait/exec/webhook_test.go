package exec

import (
	"io/fs"
	"os"
	"strings"
	"testing"
)

const webhookURL = "http://127.0.0.1:8484/v1/hooks/evalrun_hook_open-sesame"

// A local job has the URL by which it may answer, and nothing of it is in the store: not even where
// the job prints it.
func TestExecWebhook(t *testing.T) {
	r := newRig(t, `echo "to $EVALRUN_WEBHOOK_URL" >&2; echo run >"$PIPE"; read x <"$GATE"; echo "\"${#EVALRUN_WEBHOOK_URL}\""; exit 0`)
	r.p.WebhookURL = webhookURL
	r.start()
	r.line()
	r.open()
	if got := string(r.finished().Payload); got != `"55"` {
		t.Errorf("the URL has %s characters", got)
	}
	err := fs.WalkDir(os.DirFS(r.options.StoreDir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := fs.ReadFile(os.DirFS(r.options.StoreDir), path)
		if strings.Contains(string(b), "open-sesame") {
			t.Errorf("%s has the URL: %s", path, b)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
