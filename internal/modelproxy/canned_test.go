package modelproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const realKey = "sk-the-real-key-0123456789"

func start(t testing.TB) *Proxy {
	t.Helper()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func open(t testing.TB, p *Proxy, u Upstream) *Session {
	t.Helper()
	s, err := p.Open(u)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// provider is an upstream with a handler. It is closed after the proxy.
func provider(t testing.TB, h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// canned answers every request with these bytes, in pieces of n, each flushed.
func canned(contentType, body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for from := 0; from < len(body); from += n {
			_, _ = io.WriteString(w, body[from:min(from+n, len(body))])
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// reply is an answer that has been read.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a request as an agent with this session would.
func post(t testing.TB, s *Session, path, body string) reply {
	t.Helper()
	return send(t, request(t, s, path, body))
}

func request(t testing.TB, s *Session, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.Token())
	return r
}

func send(t testing.TB, r *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, readAll(t, resp.Body)}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What providers send, shortened.
const (
	chatStream = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
		": keep-alive\n\n" +
		"data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":30,\"prompt_tokens_details\":{\"cached_tokens\":100},\"completion_tokens_details\":{\"reasoning_tokens\":20}}}\n\n" +
		"data: [DONE]\n\n"
	chatPlain = `{"id":"c","object":"chat.completion","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":120,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}`
	responsesStream = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null,\"usage\":null}}\r\n\r\n" +
		"event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"response.completed\"}\r\n\r\n" +
		"event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"output\":[{\"usage\":1}],\"usage\":" +
		"{\"input_tokens\":120,\"input_tokens_details\":{\"cached_tokens\":100},\"output_tokens\":30,\"output_tokens_details\":{\"reasoning_tokens\":20}}}}\r\n\r\n"
	responsesPlain = `{"object":"response","status":"completed","error":null,"output":[],` +
		`"usage":{"input_tokens":120,"input_tokens_details":{"cached_tokens":100},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":20}}}`
	anthropicStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":15,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"message_stop\",\"text\":\"x\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":30}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	anthropicPlain = `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn",` +
		`"usage":{"input_tokens":15,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":30,"service_tier":"standard"}}`
	geminiStream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}],\"usageMetadata\":{\"promptTokenCount\":120,\"totalTokenCount\":120}}\r\n\r\n" +
		"data: {\"candidates\":[{\"content\":{},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":120,\"cachedContentTokenCount\":100,\"candidatesTokenCount\":10,\"thoughtsTokenCount\":20}}\r\n\r\n"
	geminiArray = "[{\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"promptTokenCount\":120}}\n,\r\n" +
		"{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":120,\"cachedContentTokenCount\":100,\"candidatesTokenCount\":10,\"thoughtsTokenCount\":20}}\n]"
	geminiPlain = `{"candidates":[{"content":{},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":120,"cachedContentTokenCount":100,"candidatesTokenCount":10,"thoughtsTokenCount":20}}`
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	anthropicPath = "/v1/messages"
	geminiPath    = "/v1beta/models/gemini-x:streamGenerateContent"
)
