import Glibc
import SIPKit

/// Kamailio as registrar and proxy, with a configuration made for the demo, on loopback.
@MainActor
final class Kamailio {
    let process: ChildProcess
    let port: UInt16
    static let program = "/usr/sbin/kamailio"

    init(domain: String, password: String, directory: String) throws {
        guard access(Self.program, X_OK) == 0 else {
            throw DemoError.missing("Kamailio is not installed: apt-get install kamailio sip-tester")
        }
        port = try freePort()
        let file = "\(directory)/kamailio.cfg"
        try write(Self.configuration(domain: domain, password: password, port: port), to: file)
        process = try ChildProcess(
            "kamailio",
            // Not a daemon, log to standard error, 32 MiB shared and 4 MiB private memory.
            [Self.program, "-DD", "-E", "-f", file, "-m", "32", "-M", "4", "-Y", directory],
            log: "\(directory)/kamailio.log")
    }

    /// Registrar with digest, location in memory only, proxy with record routing. A contact registered over
    /// TCP is called on the connection that it registered on: Kamailio finds it by the contact's address and
    /// port.
    private static func configuration(domain: String, password: String, port: UInt16) -> String {
        """
        #!KAMAILIO
        debug=1
        log_stderror=yes
        children=2
        tcp_children=2
        auto_aliases=no
        alias="\(domain)"
        listen=udp:127.0.0.1:\(port)
        listen=tcp:127.0.0.1:\(port)
        disable_tcp=no
        tcp_connection_lifetime=3700
        tcp_max_connections=4096
        dns=no
        rev_dns=no

        loadmodule "pv.so"
        loadmodule "tm.so"
        loadmodule "sl.so"
        loadmodule "rr.so"
        loadmodule "maxfwd.so"
        loadmodule "textops.so"
        loadmodule "siputils.so"
        loadmodule "usrloc.so"
        loadmodule "registrar.so"
        loadmodule "auth.so"

        modparam("usrloc", "db_mode", 0)
        modparam("registrar", "min_expires", 2)
        modparam("registrar", "max_expires", 7200)
        modparam("registrar", "max_contacts", 4)
        modparam("auth", "nonce_expire", 300)
        modparam("auth", "qop", "auth")
        modparam("rr", "append_fromtag", 0)

        request_route {
            if (!mf_process_maxfwd_header("70")) {
                sl_send_reply("483", "Too Many Hops");
                exit;
            }
            if (has_totag()) {
                if (loose_route() || is_method("ACK")) {
                    t_relay();
                } else {
                    sl_send_reply("404", "Not Here");
                }
                exit;
            }
            if (is_method("CANCEL")) {
                if (t_check_trans()) t_relay();
                exit;
            }
            if (is_method("REGISTER")) {
                if (!pv_www_authenticate("\(domain)", "\(password)", "0")) {
                    www_challenge("\(domain)", "1");
                    exit;
                }
                # A new contact takes the place of the one before.
                if (!save("location", "0x04")) sl_reply_error();
                exit;
            }
            if (is_method("OPTIONS") && $rU == $null) {
                sl_send_reply("200", "OK");
                exit;
            }
            t_check_trans();
            if (!lookup("location")) {
                sl_send_reply("480", "Temporarily Unavailable");
                exit;
            }
            if (is_method("INVITE")) record_route();
            if (!t_relay()) sl_reply_error();
        }
        """
    }

    /// Whether it accepts connections.
    var isReady: Bool {
        guard let socket = try? SIPSocket.connect(to: SIPAddress(host: "127.0.0.1", port: port), .tcp) else {
            return false
        }
        return (try? socket.flush()) != nil && !socket.isConnecting
    }
}

/// A port of the loopback address that is free for TCP and for UDP.
@MainActor
func freePort() throws -> UInt16 {
    for _ in 0..<16 {
        let port = try SIPListener(SIPAddress(host: "127.0.0.1", port: 0)).localAddress().port
        if (try? SIPDatagramSocket(SIPAddress(host: "127.0.0.1", port: port))) != nil { return port }
    }
    throw DemoError.missing("no port is free for TCP and UDP")
}
