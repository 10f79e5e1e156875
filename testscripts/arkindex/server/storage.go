package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// presign makes a URL of the object store. It is on another host name than the
// API, so that a client which carries its credentials along is found out.
func (x *exchange) presign(method, key, contentType string) string {
	s := x.s
	host := x.Host
	if name, port, err := net.SplitHostPort(host); err == nil && name == "127.0.0.1" {
		host = net.JoinHostPort("localhost", port)
	}
	if s.opt.Store != nil {
		host = s.opt.Store()
	}
	query := url.Values{
		"X-Amz-Date":    {s.now().UTC().Format(amzDate)},
		"X-Amz-Expires": {strconv.Itoa(int(s.opt.URLLife / time.Second))},
	}
	if contentType != "" {
		query.Set("X-Amz-SignedHeaders", "content-type;host")
	}
	query.Set("X-Amz-Signature", s.sign(method, key, query, contentType))
	return "http://" + host + (&url.URL{Path: "/s3/" + key}).EscapedPath() + "?" + query.Encode()
}

const amzDate = "20060102T150405.000000Z"

func (s *Server) sign(method, key string, query url.Values, contentType string) string {
	mac := hmac.New(sha256.New, s.w.Key)
	_, _ = fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n%s\n", method, key,
		query.Get("X-Amz-Date"), query.Get("X-Amz-Expires"), contentType)
	return hex.EncodeToString(mac.Sum(nil))
}

// storeAnswer is an error of the object store.
func storeAnswer(status int, code, message string) answer {
	return answer{
		status: status, header: http.Header{"Content-Type": {"application/xml"}},
		body: fmt.Appendf(nil, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>", code, message),
	}
}

// store serves the object store.
func store(x *exchange) answer {
	s, key, query := x.s, x.params["path"], x.URL.Query()
	if x.Header.Get("Authorization") != "" {
		return storeAnswer(http.StatusBadRequest, "InvalidArgument", "Only one auth mechanism allowed")
	}
	signed, err := time.Parse(amzDate, query.Get("X-Amz-Date"))
	seconds, bad := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || bad != nil {
		return storeAnswer(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	contentType := ""
	if strings.Contains(query.Get("X-Amz-SignedHeaders"), "content-type") {
		contentType = x.Header.Get("Content-Type")
	}
	if !hmac.Equal([]byte(s.sign(x.Method, key, query, contentType)), []byte(query.Get("X-Amz-Signature"))) {
		return storeAnswer(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	if s.now().After(signed.Add(time.Duration(seconds) * time.Second)) {
		return storeAnswer(http.StatusForbidden, "AccessDenied", "Request has expired")
	}
	if x.Method == http.MethodPut {
		switch {
		case len(x.TransferEncoding) > 0:
			return storeAnswer(http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented")
		case x.ContentLength < 0:
			return storeAnswer(http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.")
		}
		s.w.Storage[key] = x.body
		return answer{status: http.StatusOK, header: http.Header{}}
	}
	contents, ok := s.w.Storage[key]
	if !ok {
		return storeAnswer(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	}
	kind := "application/octet-stream"
	if strings.HasSuffix(key, ".tar.zst") {
		kind = "application/zstd"
	}
	return answer{status: http.StatusOK, header: http.Header{"Content-Type": {kind}}, body: contents}
}
