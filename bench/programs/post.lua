-- Makes wrk ask with POST; the body, which is JSON, is the argument after `--`.
function init(args)
   wrk.method = "POST"
   wrk.body = args[1]
   wrk.headers["Content-Type"] = "application/json"
end
