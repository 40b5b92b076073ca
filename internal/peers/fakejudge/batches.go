package fakejudge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Batch is a batch that the server has got.
type Batch struct {
	ID string
	// API is the API of its requests. Metadata is what the client has written into it (OpenAI only).
	API      string
	Metadata map[string]any
	Requests int
	// Asked counts how often its status was asked for, Fetched how often its results were fetched.
	Asked, Fetched int
	Cancelled      bool
}

// batch is a batch with its requests.
type batch struct {
	Batch
	requests []batched
	created  time.Time
	answered []entry
	ended    bool
	// endpoint and inputFile are for OpenAI only.
	endpoint, inputFile string
}

// batched is a request of a batch.
type batched struct {
	id   string
	path string
	body json.RawMessage
}

// entry is the outcome of a request.
type entry struct {
	id     string
	status int
	body   object
	// why is the reason if it has ended without an answer.
	why string
}

// batches are the batches of a server, and the files from which they are made.
type batches struct {
	s *Server

	mu      sync.Mutex
	held    bool
	slow    int
	lost    int
	refused bool
	list    []*batch
	files   map[string][]byte
}

// HoldBatches makes batches go on until they are not held any more. Other batches end as soon as
// they are asked for.
func (s *Server) HoldBatches(held bool) {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	s.batches.held = held
}

// SlowBatches makes batches end only when they are asked for the nth time.
func (s *Server) SlowBatches(n int) {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	s.batches.slow = n
}

// LoseBatches makes the next n batches without an answer to the client, as if the client's process
// died.
func (s *Server) LoseBatches(n int) {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	s.batches.lost = n
}

// RefuseBatches makes the server take no batches.
func (s *Server) RefuseBatches() {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	s.batches.refused = true
}

// Batches returns the batches that the server has got so far, in their order.
func (s *Server) Batches() (out []Batch) {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	for _, b := range s.batches.list {
		out = append(out, b.Batch)
	}
	return out
}

// serve serves requests about batches and files. It returns false if the path is about something
// else.
func (b *batches) serve(w http.ResponseWriter, r *http.Request, body []byte) bool {
	for _, route := range []struct {
		method, path string
		handle       func(w http.ResponseWriter, r *http.Request, id string, body []byte) error
	}{
		{http.MethodPost, `/v1/files`, b.upload}, {http.MethodGet, `/v1/files/([^/]+)/content`, b.download},
		{http.MethodPost, `/v1/batches`, b.makeOpenAI}, {http.MethodGet, `/v1/batches`, b.listOpenAI},
		{http.MethodGet, `/v1/batches/([^/]+)`, b.one}, {http.MethodPost, `/v1/batches/([^/]+)/cancel`, b.cancel},
		{http.MethodPost, `/v1/messages/batches`, b.makeAnthropic}, {http.MethodGet, `/v1/messages/batches`, b.listAnthropic},
		{http.MethodGet, `/v1/messages/batches/([^/]+)`, b.one},
		{http.MethodPost, `/v1/messages/batches/([^/]+)/cancel`, b.cancel},
		{http.MethodGet, `/v1/messages/batches/([^/]+)/results`, b.results},
	} {
		m := regexp.MustCompile("^" + route.path + "$").FindStringSubmatch(r.URL.Path)
		if m == nil || r.Method != route.method {
			continue
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := route.handle(w, r, m[len(m)-1], body); err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
		}
		return true
	}
	return false
}

func answerJSON(w http.ResponseWriter, v any) error {
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
	return nil
}

func (b *batches) find(id string) (*batch, error) {
	for _, one := range b.list {
		if one.ID == id {
			return one, nil
		}
	}
	return nil, fmt.Errorf("there is no batch %s", id)
}

// one reports the state of a batch. A batch that is not held ends when it is first asked for.
func (b *batches) one(w http.ResponseWriter, _ *http.Request, id string, _ []byte) error {
	one, err := b.find(id)
	if err != nil {
		return err
	}
	one.Asked++
	if !b.held && !one.ended && one.Asked >= b.slow {
		b.end(one)
	}
	return answerJSON(w, b.show(one))
}

func (b *batches) cancel(w http.ResponseWriter, _ *http.Request, id string, _ []byte) error {
	one, err := b.find(id)
	if err != nil {
		return err
	}
	if one.ended {
		return errors.New("the batch has ended")
	}
	one.Cancelled, one.ended = true, true
	for _, r := range one.requests {
		one.answered = append(one.answered, entry{id: r.id, why: "canceled"})
	}
	return answerJSON(w, b.show(one))
}

// end answers all requests of a batch by the rule, the last one first, because no order is
// promised.
func (b *batches) end(one *batch) {
	one.ended = true
	for _, r := range slices.Backward(one.requests) {
		format := formats[r.path]
		q := Request{API: format.name, Batch: one.ID}
		if err := json.Unmarshal(r.body, &q.Body); err != nil {
			one.answered = append(one.answered, entry{id: r.id, status: http.StatusBadRequest, body: errorBody(err.Error())})
			continue
		}
		q.Model = text(q.Body["model"])
		format.read(&q)
		b.s.noteRequest(q)
		switch reply := b.s.rule(q); {
		case reply.Hang:
			one.answered = append(one.answered, entry{id: r.id, why: "expired"})
		case reply.Status != 0:
			one.answered = append(one.answered, entry{id: r.id, status: reply.Status, body: errorBody(reply.Error)})
		case reply.Raw != "":
			one.answered = append(one.answered, entry{id: r.id, status: http.StatusOK, body: object{"text": reply.Raw}})
		default:
			one.answered = append(one.answered, entry{id: r.id, status: http.StatusOK, body: format.reply(q, reply)})
		}
	}
	if one.endpoint != "" {
		b.write(one)
	}
}

func errorBody(message string) object {
	return object{"error": object{"message": message, "type": "invalid_request_error", "param": nil, "code": nil}}
}

// add makes a batch, with a unique id.
func (b *batches) add(w http.ResponseWriter, one *batch) error {
	if b.refused {
		return errors.New("this project may have no batches")
	}
	ids := map[string]bool{}
	for _, q := range one.requests {
		if !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(q.id) || ids[q.id] {
			return fmt.Errorf("custom_id %q is not 1 to 64 letters, digits, _ and -, or comes twice", q.id)
		}
		ids[q.id] = true
	}
	if len(one.requests) == 0 {
		return errors.New("a batch needs a request")
	}
	one.created, one.Requests = time.Now(), len(one.requests)
	b.list = append(b.list, one)
	if b.lost > 0 {
		b.lost--
		panic(http.ErrAbortHandler) // the connection ends here
	}
	return answerJSON(w, b.show(one))
}

func (b *batches) show(one *batch) object {
	if one.endpoint == "" {
		return b.showAnthropic(one)
	}
	return showOpenAI(one)
}

// page returns the newest batches of one kind after a cursor.
func (b *batches) page(openai bool, after string, limit int) (out []*batch, more bool) {
	skip := after != ""
	for _, one := range slices.Backward(b.list) {
		if (one.endpoint != "") != openai {
			continue
		}
		if skip {
			skip = one.ID != after
			continue
		}
		if len(out) == limit {
			return out, true
		}
		out = append(out, one)
	}
	return out, false
}

// pageSize is smaller than the pages that clients ask for, so that they need several.
const pageSize = 2

func lines(all []object) []byte {
	var out bytes.Buffer
	for _, line := range all {
		_ = json.NewEncoder(&out).Encode(line) // a buffer takes everything
	}
	return out.Bytes()
}

func sendLines(w http.ResponseWriter, data []byte) error {
	w.Header().Set("Content-Type", "application/x-jsonl")
	_, _ = io.Copy(w, bytes.NewReader(data)) // the client may have gone
	return nil
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// id makes an id in the form of a provider.
func (b *batches) id(prefix string) string {
	return fmt.Sprintf("%s%02d%s", prefix, len(b.list)+len(b.files)+1, strings.Repeat("0", 6))
}
