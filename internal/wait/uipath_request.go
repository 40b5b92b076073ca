package wait

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/evalrun/evalrun/internal/fault"
)

const (
	jobsPath = "/odata/Jobs"
	// namespace begins the names of Orchestrator's OData functions and actions.
	namespace = "UiPath.Server.Configuration.OData."
)

// ask sends a request to a path of Orchestrator's API, which is a template. An error that is not a
// *fault.Fault is a *RetryError.
func (s *uipathSource) ask(ctx context.Context, p Job, method, path string, body json.RawMessage) (answer, error) {
	q := call{
		Request: Request{Method: method, URL: s.config.URL + path, Headers: map[string]string{"Authorization": "Bearer " + s.config.Token}},
		pending: p, resolve: s.resolve, literalBody: body,
	}
	var err error
	if q.literalHeaders, err = s.folder(p); err != nil {
		return answer{}, s.retry(p, answer{}, err)
	}
	a, err := s.client.do(ctx, q)
	if err != nil {
		return a, s.retry(p, a, err)
	}
	return a, nil
}

// folder gives the header that says in which folder the job is: that of a job which exists already
// as the agent said it, else that of the configuration; that of a job to start as it is configured,
// else as the agent said it. For a model may choose what to start, and the eval set where.
func (s *uipathSource) folder(p Job) (map[string]string, error) {
	key, path := p.Spec.FolderKey, p.Spec.FolderPath
	if configured := s.config.FolderKey != "" || s.config.FolderPath != ""; configured && (p.Spec.ItemKey == "" || key == "" && path == "") {
		var err, err2 error
		key, err = s.resolve.expand(s.config.FolderKey)
		path, err2 = s.resolve.expand(s.config.FolderPath)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
	}
	switch {
	case key != "" && !printable(key):
		return nil, fault.Newf(fault.Job, "expected the key of a folder, got %q", excerpt([]byte(key)))
	case key != "":
		return map[string]string{"X-UIPATH-FolderKey": key}, nil
	case path == "":
		return nil, nil
	case printable(path):
		return map[string]string{"X-UIPATH-FolderPath": path}, nil
	}
	// Anything but ASCII goes as UTF-16, little endian, in base64 (Orchestrator's API guide; so
	// does UiPath's TypeScript SDK).
	var units []byte
	for _, u := range utf16.Encode([]rune(path)) {
		units = binary.LittleEndian.AppendUint16(units, u)
	}
	return map[string]string{"X-UIPATH-FolderPath-Encoded": base64.StdEncoding.EncodeToString(units)}, nil
}

// folderOf names the folder in a message.
func (s *uipathSource) folderOf(p Job) string {
	switch {
	case s.config.FolderKey != "":
		return "the folder " + s.config.FolderKey
	case s.config.FolderPath != "":
		return "the folder " + s.config.FolderPath
	}
	return fmt.Sprintf("the folder %q", excerpt([]byte(p.Spec.FolderKey+p.Spec.FolderPath)))
}

// printable tells whether a text can be the value of a header as it is.
func printable(s string) bool {
	return strings.TrimSpace(s) == s && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// refused is the error of an answer to what comes before a job and to its start, nil if there is
// none. It is not tried again what would be refused again.
func (s *uipathSource) refused(p Job, a answer) error {
	switch {
	case a.ok():
		return nil
	case a.status >= 500, a.status < 400, a.status == http.StatusTooManyRequests, a.status == http.StatusRequestTimeout,
		a.status == http.StatusConflict, a.status == http.StatusTooEarly:
		return s.retry(p, a, a.error())
	}
	return fault.New(fault.Job, "the job could not be started: "+explained(a).Error())
}

// explained is the error of an answer, with what it means of those whose reason is in the
// configuration.
func explained(a answer) error {
	switch a.status {
	case http.StatusUnauthorized:
		return fmt.Errorf("the token is not accepted, it may have expired: %w", a.error())
	case http.StatusForbidden:
		return fmt.Errorf("the token gives no right to this in the folder: %w", a.error())
	}
	return a.error()
}

// page gives the elements of a page of OData.
func page(a answer) ([]object, error) {
	body, _ := parseObject(a.value())
	list, _ := body.get("value")
	wrong := fmt.Errorf("%s answered something that is not a list of OData: %s", a.what, excerpt(a.body))
	if kindOf(list) != '[' {
		return nil, wrong
	}
	items, err := elements(list, maxPage)
	if err != nil {
		return nil, wrong
	}
	out := make([]object, len(items))
	for i, item := range items {
		var ok bool
		if out[i], ok = parseObject(item); !ok {
			return nil, wrong
		}
	}
	return out, nil
}

// maxPage is how many elements a page may have. One is asked for.
const maxPage = 1000

// retry wraps an error with when to try again, unless it is a fault.
func (s *uipathSource) retry(p Job, a answer, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return &RetryError{After: s.after(p, a), Err: err}
}

func (s *uipathSource) after(p Job, a answer) time.Duration {
	return s.polling.after(p.Checks, a.retryAfter, s.client.rand)
}
