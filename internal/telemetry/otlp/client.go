package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/evalrun/evalrun/internal/retry"
)

// contentType is the content type of requests and answers.
const contentType = "application/x-protobuf"

// maxAnswer is the most bytes of an answer that are read.
const maxAnswer = 64 << 10

// Refused means that the collector will never take the request, however often it is sent.
type Refused struct{ Status int }

func (e *Refused) Error() string {
	return fmt.Sprintf("it answered %d %s", e.Status, http.StatusText(e.Status))
}

// Later means that the collector asks to wait.
type Later struct {
	Status int
	// After is the time to wait; 0 if the collector does not say.
	After time.Duration
}

func (e *Later) Error() string {
	return fmt.Sprintf("it answered %d %s", e.Status, http.StatusText(e.Status))
}

// Client sends to one endpoint. It is safe for concurrent use.
type Client struct {
	endpoint        Endpoint
	agent           string
	now             func() time.Time
	traces, metrics *http.Client
}

// NewClient makes a client; agent is its User-Agent.
func NewClient(e Endpoint, agent string, now func() time.Time) *Client {
	return &Client{endpoint: e, agent: agent, now: now, traces: e.traces.client(), metrics: e.metrics.client()}
}

func (s signal) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	transport.MaxIdleConnsPerHost = 1
	return &http.Client{Timeout: s.timeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Endpoint is the endpoint of the client.
func (c *Client) Endpoint() Endpoint { return c.endpoint }

// Traces sends spans. rejected counts those that the collector took but will not keep.
func (c *Client) Traces(ctx context.Context, r *collectortrace.ExportTraceServiceRequest) (rejected int64, err error) {
	var answer collectortrace.ExportTraceServiceResponse
	err = c.post(ctx, c.traces, c.endpoint.Traces, c.endpoint.traces, r, &answer)
	return answer.GetPartialSuccess().GetRejectedSpans(), err
}

// Metrics sends metrics. Without a URL for them it does nothing.
func (c *Client) Metrics(ctx context.Context, r *collectormetrics.ExportMetricsServiceRequest) error {
	if c.endpoint.Metrics == "" {
		return nil
	}
	var answer collectormetrics.ExportMetricsServiceResponse
	return c.post(ctx, c.metrics, c.endpoint.Metrics, c.endpoint.metrics, r, &answer)
}

// Close ends idle connections.
func (c *Client) Close() {
	c.traces.CloseIdleConnections()
	c.metrics.CloseIdleConnections()
}

// post sends one request. Its errors do not name the URL, which may hold a secret.
func (c *Client) post(ctx context.Context, client *http.Client, to string,
	s signal, message, answer proto.Message) error {
	body, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	if s.gzip {
		body = compressed(body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the request could not be made") // the error contains the URL
	}
	req.Header = s.headers.Clone()
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", c.agent)
	if s.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := client.Do(req)
	if err != nil {
		if withURL := (*url.Error)(nil); errors.As(err, &withURL) {
			err = withURL.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("no answer in time")
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		_ = proto.Unmarshal(text, answer) // an empty answer means that it took everything
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		// The protocol lists these four, and says that the others must not be sent again.
		after, _ := retry.After(resp.Header, c.now())
		return &Later{Status: status, After: after}
	default:
		return &Refused{Status: status}
	}
}

func compressed(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body) // memory does not fail
	_ = z.Close()
	return b.Bytes()
}
