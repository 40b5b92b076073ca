// Package otlp sends spans and metrics to a collector by OTLP over HTTP, in Protocol Buffers.
// It knows the environment variables of OpenTelemetry, and nothing of runs.
//
// https://opentelemetry.io/docs/specs/otlp/#otlphttp specifies the protocol.
package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// FromEnvironment is the endpoint that takes its URL from the environment alone.
const FromEnvironment = "env"

// defaultTimeout is the timeout of a request if OTEL_EXPORTER_OTLP_TIMEOUT is not set.
const defaultTimeout = 10 * time.Second

// Endpoint says where a collector is and how to send to it.
type Endpoint struct {
	// Traces and Metrics are the URLs of the two signals.
	Traces, Metrics string

	traces, metrics signal
}

// signal has what requests of one signal need besides their URL.
type signal struct {
	headers http.Header
	timeout time.Duration
	gzip    bool
	tls     *tls.Config
}

// ParseEndpoint reads the value of --otlp: the base URL of a collector, to which it adds v1/traces
// and v1/metrics, or FromEnvironment. Everything else comes from the variables
// OTEL_EXPORTER_OTLP_*. The variable of a signal goes before the one of both.
func ParseEndpoint(text string, lookup func(string) (string, bool)) (e Endpoint, err error) {
	env := environment(lookup)
	if text == FromEnvironment {
		e.Traces, e.Metrics, err = env.urls()
	} else {
		e.Traces, e.Metrics, err = under(text)
	}
	if err != nil {
		return Endpoint{}, err
	}
	var err1, err2 error
	e.traces, err1 = env.signal("TRACES")
	e.metrics, err2 = env.signal("METRICS")
	return e, errors.Join(err1, err2)
}

// Name is the endpoint's name in messages: scheme and host, since the rest may be a credential.
func (e Endpoint) Name() string {
	u, err := url.Parse(e.Traces)
	if err != nil {
		return "the collector"
	}
	return u.Scheme + "://" + u.Host
}

// under returns the URLs below a base.
func under(base string) (traces, metrics string, err error) {
	if err := checkURL(base); err != nil {
		return "", "", err
	}
	base = strings.TrimSuffix(base, "/")
	return base + "/v1/traces", base + "/v1/metrics", nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("expected the URL of a collector that takes OTLP over HTTP, such as http://localhost:4318")
	}
	return nil
}

// environment looks up the variable with a suffix after OTEL_EXPORTER_OTLP_. An empty variable
// counts as not set.
type environment func(string) (string, bool)

const prefix = "OTEL_EXPORTER_OTLP_"

func (env environment) get(name string) string {
	value, _ := env(prefix + name)
	return strings.TrimSpace(value)
}

// of returns the variable of a signal, or the one of both, and its name.
func (env environment) of(signal, name string) (value, variable string) {
	if value := env.get(signal + "_" + name); value != "" {
		return value, prefix + signal + "_" + name
	}
	return env.get(name), prefix + name
}

// urls returns the URLs of the environment. The URL of a signal is used as it is.
func (env environment) urls() (traces, metrics string, err error) {
	if base := env.get("ENDPOINT"); base != "" {
		if traces, metrics, err = under(base); err != nil {
			return "", "", fmt.Errorf("%sENDPOINT: %w", prefix, err)
		}
	}
	for name, at := range map[string]*string{"TRACES_ENDPOINT": &traces, "METRICS_ENDPOINT": &metrics} {
		if text := env.get(name); text != "" {
			if err := checkURL(text); err != nil {
				return "", "", fmt.Errorf("%s%s: %w", prefix, name, err)
			}
			*at = text
		}
	}
	if traces == "" {
		return "", "", fmt.Errorf("%sENDPOINT is not set; set it, or name the collector: --otlp http://localhost:4318",
			prefix)
	}
	return traces, metrics, nil
}

func (env environment) signal(name string) (s signal, err error) {
	s.timeout, s.headers = defaultTimeout, http.Header{}
	if text, variable := env.of(name, "PROTOCOL"); text != "" && text != "http/protobuf" {
		return s, fmt.Errorf("%s: expected http/protobuf, which is what evalrun speaks, got %q", variable, text)
	}
	if text, variable := env.of(name, "TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return s, fmt.Errorf("%s: expected milliseconds, such as 10000, got %q", variable, text)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch text, variable := env.of(name, "COMPRESSION"); text {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return s, fmt.Errorf("%s: expected gzip or none, got %q", variable, text)
	}
	text, variable := env.of(name, "HEADERS")
	if err := s.addHeaders(text); err != nil {
		return s, fmt.Errorf("%s: %w", variable, err)
	}
	s.tls, err = env.tls(name)
	return s, err
}

// addHeaders reads key=value pairs as W3C Baggage writes them. Errors never contain their values.
func (s signal) addHeaders(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || err != nil || key == "" ||
			strings.ContainsAny(key+value, "\r\n\x00") || strings.ContainsAny(key, " :") {
			return errors.New("expected headers such as authorization=Bearer%20TOKEN, separated by commas")
		}
		s.headers.Set(key, value)
	}
	return nil
}

// tls returns the configuration of HTTPS, nil if the environment has none.
func (env environment) tls(name string) (*tls.Config, error) {
	ca, caVariable := env.of(name, "CERTIFICATE")
	cert, certVariable := env.of(name, "CLIENT_CERTIFICATE")
	key, _ := env.of(name, "CLIENT_KEY")
	if ca == "" && cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", caVariable, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", caVariable, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", certVariable, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
