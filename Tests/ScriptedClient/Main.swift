// A client process for tests: it carries out commands from its standard input and reports events on its
// standard output, one a line. As a process of its own it can be frozen, stopped and killed; while stopped it
// reads no lines, which is the purpose.
//
// Each line of input is answered by one line `ok …` or `error CODE message`; lines about events come in
// between. `help` lists the commands.
//
// With CLIENT_CONTROL in its environment, the path of a Unix socket, it makes a connection to that its
// standard input and output: a process that the supervisor has launched has no other.

import Glibc

@main
struct Main {
    static func main() {
        // On the way to an exit the reader may be gone already; that is no error.
        signal(SIGPIPE, SIG_IGN)
        ScriptedClient.connectToControl()
        let scripted = ScriptedClient()
        scripted.say("ready pid=\(scripted.processID)")
        serve(scripted)
    }

    static func serve(_ scripted: ScriptedClient) {
        while let line = readLine() {
            let words = line.split(separator: " ").map(String.init)
            guard let command = words.first else { continue }
            do throws(Refusal) {
                let answer = try scripted.perform(command, Array(words.dropFirst()))
                scripted.say(answer.isEmpty ? "ok" : "ok \(answer)")
            } catch {
                scripted.say("error \(error.code) \(error.message)")
            }
        }
    }
}
