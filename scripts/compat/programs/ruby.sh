# title: Ruby: threads, fork, sockets, JSON
# area: Languages
ruby -rjson -rsocket -e 'puts JSON.generate({a:[1,2]}); puts 4.times.map{|i|Thread.new{i*i}}.sum(&:value); r,w=IO.pipe; fork{w.puts "kid"}; Process.wait; puts r.gets; s=TCPServer.new("127.0.0.1",0); Thread.new{c=s.accept; c.puts "hi"; c.close}; puts TCPSocket.new("127.0.0.1",s.addr[1]).gets'
