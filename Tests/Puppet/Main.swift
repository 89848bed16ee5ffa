// A client process for tests: it does what the lines on its standard input say and tells on its standard output
// what happens, one line each. Being a process of its own it can be frozen, stopped and killed; while it is, it
// reads no lines, and that is what it is for.
//
// Each line of input is answered by one line `ok …` or `error CODE message`; lines about events come in between.
// `help` lists the commands.
//
// With PUPPET_CONTROL in its environment, the path of a Unix socket, it takes a connection to that as its standard
// input and output: one that the supervisor has launched has no other.

import Glibc

@main
struct Main {
    static func main() {
        // Who is told to exit may find nobody listening on its way there, and that is no bad end.
        signal(SIGPIPE, SIG_IGN)
        Puppet.connectToControl()
        let puppet = Puppet()
        puppet.say("ready pid=\(puppet.processID)")
        serve(puppet)
    }

    static func serve(_ puppet: Puppet) {
        while let line = readLine() {
            let words = line.split(separator: " ").map(String.init)
            guard let command = words.first else { continue }
            do throws(Refusal) {
                let answer = try puppet.perform(command, Array(words.dropFirst()))
                puppet.say(answer.isEmpty ? "ok" : "ok \(answer)")
            } catch {
                puppet.say("error \(error.code) \(error.message)")
            }
        }
    }
}
