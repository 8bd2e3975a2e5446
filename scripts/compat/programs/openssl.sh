# title: OpenSSL: keys, certificates, a TLS handshake
# area: Tools
openssl req -x509 -newkey rsa:2048 -nodes -keyout k -out c -days 2 -subj /CN=x.test 2>/dev/null; openssl x509 -in c -noout -subject
openssl s_server -accept 127.0.0.1:4433 -key k -cert c -quiet -www >/dev/null 2>&1 & S=$!; sleep 1
echo | openssl s_client -connect 127.0.0.1:4433 2>/dev/null | grep -E '^ *(Protocol|New,)' | head -1; kill $S; openssl rand -hex 8 | wc -c; echo x | openssl dgst -sha256
