"""Softphones."""

import glob, os, re, shutil, subprocess, time

from program import PATIENCE, Program, free_port
from stage import eventually

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

KAMAILIO = """#!KAMAILIO
debug=1
log_stderror=yes
children=2
auto_aliases=no
alias="{domain}"
listen=udp:127.0.0.1:{port}
disable_tcp=yes
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
modparam("usrloc", "db_mode", 0)
request_route {{
    if (!mf_process_maxfwd_header("70")) exit;
    if (has_totag()) {{
        if (loose_route() || is_method("ACK")) t_relay();
        exit;
    }}
    if (is_method("CANCEL")) {{
        if (t_check_trans()) t_relay();
        exit;
    }}
    if (is_method("REGISTER")) {{
        if (!save("location", "0x04")) sl_reply_error();
        exit;
    }}
    t_check_trans();
    if (!lookup("location")) {{
        sl_send_reply("480", "Temporarily Unavailable");
        exit;
    }}
    if (is_method("INVITE")) record_route();
    if (!t_relay()) sl_reply_error();
}}
"""


class Baresip(Program):
    """Registered at Kamailio, and called by SIPp. A call is answered, lasts half a second and ends."""

    name = "baresip"
    packages = {
        "baresip-core": "/usr/bin/baresip", "kamailio": "/usr/sbin/kamailio", "sip-tester": "/usr/bin/sipp"
    }
    # For half a minute after a call it has timers of SIP's transactions, and calls come often here.
    patience = 120
    complaint = re.compile(r"error|failed|timed? ?out|lost|unregistered|[45]\d\d (?!OK)[A-Z][a-z]", re.I)
    harmless = re.compile(r"0 failed|could not|No such file|module.*not found")

    DOMAIN = "phones.example"
    calls = 0

    def prepare(self):
        self.server = free_port()
        configuration = self.write("kamailio.cfg", KAMAILIO.format(domain=self.DOMAIN, port=self.server))
        self.help(
            "/usr/sbin/kamailio", "-DD", "-E", "-f", configuration, "-m", "32", "-M", "4", "-Y", self.directory
        )
        self.scenario = shutil.copy(os.path.join(ROOT, "scripts", "sipp", "caller.xml"), self.directory)
        self.write("called.csv", f"SEQUENTIAL\nalice;{self.DOMAIN}\n")

    def command(self):
        self.write(
            "accounts",
            f"<sip:alice@{self.DOMAIN}>;auth_pass=none;outbound=\"sip:127.0.0.1:{self.server}\";regint=600;"
            "answermode=auto\n",
        )
        self.write(
            "config",
            "poll_method epoll\nsip_listen 127.0.0.1:0\ncall_max_calls 4\naudio_player aubridge,none\n"
            "audio_source aubridge,none\naudio_alert aubridge,none\nmodule_path /usr/lib/baresip/modules\n"
            "module g711.so\nmodule aubridge.so\nmodule_app account.so\nmodule_app menu.so\n",
        )
        self.write("contacts", "")
        return ["/usr/bin/baresip", "-f", self.directory]

    def connect(self):
        if not re.search(r"registered successfully|200 OK", self.log()):
            raise ConnectionError("it is not registered")

    def request(self):
        """One call; the time is that to its answer."""
        self.calls += 1
        for name in glob.glob(self.path("*_rtt.csv")):
            os.unlink(name)
        call = self.help(
            "/usr/bin/sipp", f"127.0.0.1:{self.server}", "-sf", self.scenario,
            "-inf", self.path("called.csv"), "-m", "1", "-t", "u1", "-i", "127.0.0.1", "-p", str(free_port()),
            "-timeout", str(PATIENCE), "-timeout_error", "-nostdin", "-trace_err", "-error_file", self.path("sipp-errors"), "-trace_rtt", "-rtt_freq", "1",
            env={"TERM": "dumb", "PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL, cwd=self.directory,
        )
        code = call.wait(PATIENCE + 5)
        self.helpers.remove(call)
        assert code == 0, f"call {self.calls}: sipp ended with {code}"
        with open(glob.glob(self.path("*_rtt.csv"))[0]) as text:
            return float(text.read().splitlines()[-1].split(";")[1]) / 1_000

    def recover(self):
        time.sleep(1)
