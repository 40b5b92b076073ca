package main

import (
	"crypto/tls"
	"net"
)

// open begins to listen.
func (a *serveAddress) open() (net.Listener, error) {
	var certificate tls.Certificate
	if a.cert != "" {
		var err error
		if certificate, err = tls.LoadX509KeyPair(a.cert, a.key); err != nil {
			return nil, usageError("--tls-cert, --tls-key: %w", err)
		}
	}
	ln, err := net.Listen("tcp", a.listen)
	if err != nil {
		return nil, usageError("--listen: %w", err)
	}
	if a.cert == "" {
		return ln, nil
	}
	return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}}), nil
}

// url is the URL at which callers reach the server.
func (a *serveAddress) url(listening net.Addr) string {
	if a.public != nil {
		return a.public.String()
	}
	if a.cert != "" {
		return "https://" + listening.String()
	}
	return "http://" + listening.String()
}
